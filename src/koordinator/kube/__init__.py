"""All I/O with an API server: client, informers, work queues, leader election, events, and our own HTTP server."""
