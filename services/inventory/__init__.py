"""Stock: rules, process manager, API and worker. It refuses with `Refused` of the kernel and `Problem` of the edge."""
