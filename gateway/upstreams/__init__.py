"""The engines behind the gateway: pools by model name, one engine chosen for each call.

Each file is one idea: HTTP, breaker, choice, member, pool, health, publications, model list.
"""
