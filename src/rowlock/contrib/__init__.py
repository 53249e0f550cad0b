"""rowlock inside other frameworks, and beside other queues: each is a module to be imported."""
