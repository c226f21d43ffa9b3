"""The Spark data source and sink of Waltz."""
