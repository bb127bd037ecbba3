"""What befalls a server that is open to everybody, done to a real server process, and what came of it."""
