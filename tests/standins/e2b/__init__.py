"""A stand-in of E2B: the control plane, the edge and envd, as the specification of its interfaces says."""
