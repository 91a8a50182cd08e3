"""Stand-ins of the cloud walls' APIs; README.md says how they work."""
