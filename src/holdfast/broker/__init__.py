"""The shell: sockets, tasks, threads, wiring."""
