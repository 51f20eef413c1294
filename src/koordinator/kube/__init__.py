"""All communication with an API server: client, informers, work queues, leader election, events, HTTP server."""
