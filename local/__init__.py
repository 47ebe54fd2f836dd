"""The embedded default: AWS emulators, the real control plane, nodes that run pods as processes."""
