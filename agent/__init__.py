"""The node agent: saves the containers of its node when Sluice orders it."""
