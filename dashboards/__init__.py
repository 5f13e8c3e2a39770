"""The place of Grafana dashboards as code and of the review console. Not built yet."""
