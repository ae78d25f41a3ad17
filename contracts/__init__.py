"""The contracts: Avro schemas, topics and the code generated from them. They raise no errors of their own."""
