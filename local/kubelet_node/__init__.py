"""Real nodes: every emulated instance a kubelet with containerd, runc and CRIU, in a folder."""
