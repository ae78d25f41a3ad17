-- The query API measures the lag (services/projection/engine/lag.py): what the projection last saw says nothing once it is dead.
DROP TABLE lag;
