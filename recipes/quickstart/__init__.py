"""A ReAct agent with a calculator on word problems: the recipe behind `agentworld demo`.

`problems` makes the tasks, `agent` solves one, `rollouts` runs them all through a gateway.
"""
