"""Where we run: settings, clusters, clients, supervision, monitoring."""
