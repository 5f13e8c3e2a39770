"""Configuration of the embedded ClickHouse engine, as XML text.

Users: `default` (the services: databases `agentworld*` and reading `system`), `admin` (everything,
also stops the engine; password in a file only its owner reads) and `analyst` (SELECT on
`agentworld*`, read-only, with limits). All of them from loopback only.
"""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

MEMORY_BYTES = 2_000_000_000
"""The engine refuses queries beyond it; at rest it holds about 300 MB."""

_SERVICE_GRANTS = (
    "GRANT SELECT, INSERT, ALTER, CREATE, DROP, TRUNCATE, OPTIMIZE, SHOW ON *.*",
    "GRANT SYSTEM LISTEN ON *.*",  # the engine's own session is this user
    "GRANT KILL QUERY ON *.*",
    "GRANT TABLE ENGINE ON *",
)
_ANALYST_GRANTS = ("GRANT SELECT, SHOW ON agentworld*.*",)


def server_xml(root: Path, *, http_port: int) -> str:
    """`config.xml`: listens on loopback HTTP only, small caches and pools.

    A system log (`query_log`, `trace_log`, …) runs where its section stands, even one that says
    `remove`: none stands here. In the field they outgrow the data by two orders of magnitude.
    """
    return f"""<clickhouse>
  <listen_host>127.0.0.1</listen_host>
  <http_port>{http_port}</http_port>
  <!-- 0 is any free port; left out, every engine of this machine would want 9000. -->
  <tcp_port>0</tcp_port>
  <keep_alive_timeout>30</keep_alive_timeout>
  <users_config>{escape(str(root))}/users.xml</users_config>
  <user_directories><users_xml><path>{escape(str(root))}/users.xml</path></users_xml></user_directories>
  <user_files_path>{escape(str(root))}/user_files/</user_files_path>
  <max_server_memory_usage>{MEMORY_BYTES}</max_server_memory_usage>
  <mark_cache_size>134217728</mark_cache_size>
  <uncompressed_cache_size>0</uncompressed_cache_size>
  <background_pool_size>2</background_pool_size>
  <background_schedule_pool_size>8</background_schedule_pool_size>
  <background_common_pool_size>2</background_common_pool_size>
  <merge_tree>
    <number_of_free_entries_in_pool_to_execute_mutation>1</number_of_free_entries_in_pool_to_execute_mutation>
    <number_of_free_entries_in_pool_to_lower_max_size_of_merge>1</number_of_free_entries_in_pool_to_lower_max_size_of_merge>
    <number_of_free_entries_in_pool_to_execute_optimize_entire_partition>1</number_of_free_entries_in_pool_to_execute_optimize_entire_partition>
    <fsync_after_insert>1</fsync_after_insert>
    <fsync_part_directory>1</fsync_part_directory>
  </merge_tree>
</clickhouse>
"""


def users_xml(*, admin_password: str) -> str:
    """`users.xml`; users can be defined only here, the engine knows no CREATE USER."""
    return f"""<clickhouse>
  <profiles>
    <default>
      <max_memory_usage>{MEMORY_BYTES}</max_memory_usage>
      <use_skip_indexes_if_final_exact_mode>1</use_skip_indexes_if_final_exact_mode>
    </default>
    <analyst>
      <readonly>1</readonly>
      <use_skip_indexes_if_final_exact_mode>1</use_skip_indexes_if_final_exact_mode>
      <max_execution_time>10</max_execution_time>
      <max_threads>1</max_threads>
      <max_memory_usage>1000000000</max_memory_usage>
      <max_rows_to_read>2000000000</max_rows_to_read>
      <max_result_rows>100000</max_result_rows>
      <max_result_bytes>100000000</max_result_bytes>
      <result_overflow_mode>throw</result_overflow_mode>
      <allow_ddl>0</allow_ddl>
      <constraints>
        <max_execution_time><changeable_in_readonly/><min>1</min><max>60</max></max_execution_time>
      </constraints>
    </analyst>
  </profiles>
  <quotas><default/></quotas>
  <users>
{_user("default", "", "default", _SERVICE_GRANTS)}
{_user("admin", admin_password, "default", ())}
{_user("analyst", "", "analyst", _ANALYST_GRANTS)}
  </users>
</clickhouse>
"""


def _user(name: str, password: str, profile: str, grants: tuple[str, ...]) -> str:
    granted = "".join(f"<query>{escape(grant)}</query>" for grant in grants)
    rights = f"<grants>{granted}</grants>" if grants else "<access_management>1</access_management>"
    return f"""    <{name}>
      <password>{escape(password)}</password>
      <networks><ip>127.0.0.1</ip><ip>::1</ip></networks>
      <profile>{profile}</profile><quota>default</quota>
      {rights}
    </{name}>"""
