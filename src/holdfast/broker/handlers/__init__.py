"""One API family a module: request in, response out."""
