"""Groups of commands, one module each; `agentworld.cli` puts them together."""
