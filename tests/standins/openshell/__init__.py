"""A stand-in of an OpenShell gateway: its gRPC API as far as one backend uses it, over HTTP/2 on loopback."""
