-- It also counts the rebuilds with other code. Code that does not know of those must end at this column's new name.
ALTER TABLE position RENAME decisions TO generation;
