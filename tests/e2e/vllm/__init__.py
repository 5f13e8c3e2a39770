"""Every protocol through the gateway over a real vLLM, its answers tapped on the way."""
