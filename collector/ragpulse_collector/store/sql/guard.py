"""Checks users' SQL: one SELECT over the views and tables of the store, with the functions of this module."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import duckdb

from ragpulse_collector.store.protocol import Refused
from ragpulse_collector.store.schema import TABLES, VIEW_NAMES

_OPERATORS = """
    ! !__postfix !~~ !~~* % & && * ** + - -> ->> / // < <-> << <= <=> <@ = > >= >> @ @> ^ ^@ | || ~ ~~ ~~* ~~~
"""

_MATHS = """
    abs acos acosh add asin asinh atan atan2 atanh bit_count cbrt ceil ceiling cos cosh cot degrees divide even exp
    factorial fdiv floor fmod gamma gcd greatest greatest_common_divisor isfinite isinf isnan lcm least
    least_common_multiple lgamma ln log log10 log2 mod multiply nextafter pi pow power radians round round_even
    roundbankers sign signbit sin sinh sqrt subtract tan tanh trunc xor
"""

_LOGIC = "coalesce if ifnull nullif constant_or_null typeof"

_TEXT_TESTS = """
    ascii bit_length char_length character_length contains ends_with ilike_escape instr length len like_escape
    not_ilike_escape not_like_escape octet_length ord position prefix regexp_full_match regexp_matches starts_with
    strlen strpos suffix unicode
"""

_TEXT_OF_SAME_SIZE = """
    lcase left lower ltrim md5 nfc_normalize regexp_extract reverse right rtrim sha1 sha256 split_part strip_accents
    substr substring trim ucase upper
"""

_TEXT = """
    bar base64 bin chr concat concat_ws damerau_levenshtein decode editdist3 encode format
    formatreadabledecimalsize formatreadablesize format_bytes from_base64 from_binary from_hex hamming hash hex jaccard
    jaro_similarity jaro_winkler_similarity left_grapheme length_grapheme levenshtein lpad md5_number md5_number_lower
    md5_number_upper mismatches overlay parse_dirname parse_dirpath parse_filename parse_formatted_bytes parse_path
    pg_size_pretty printf regexp_escape regexp_extract_all regexp_replace regexp_split_to_array
    regexp_split_to_table repeat replace right_grapheme rpad split str_split str_split_regex string_split
    string_split_regex string_to_array substring_grapheme to_base to_base64 to_binary to_hex translate unbin unhex
    url_decode url_encode
"""

_TIME = """
    age ago century current_date current_localtime current_localtimestamp current_time current_timestamp date_add
    date_diff date_part date_sub date_trunc datediff datepart datesub datetrunc day dayname dayofmonth dayofweek
    dayofyear days_in_month decade epoch epoch_ms epoch_ns epoch_us era get_current_time get_current_timestamp hour
    isodow isoyear julian last_day make_date make_time make_timestamp make_timestamp_ms make_timestamp_ns
    make_timestamptz microsecond millennium millisecond minute month monthname nanosecond normalized_interval now
    quarter second time_bucket timezone timezone_hour timezone_minute to_centuries to_days to_decades to_hours
    to_microseconds to_millennia to_milliseconds to_minutes to_months to_quarters to_seconds to_timestamp to_weeks
    to_years today transaction_timestamp try_strptime week weekday weekofyear year yearweek
"""
_TIME_AS_TEXT = "strftime strptime"

_LISTS = """
    aggregate apply array_aggr array_aggregate array_append array_apply array_cat array_concat array_contains
    array_cosine_distance array_cosine_similarity array_cross_product array_distance array_distinct array_dot_product
    array_extract array_filter array_grade_up array_has array_has_all array_has_any array_indexof array_inner_product
    array_intersect array_length array_negative_dot_product array_negative_inner_product array_pop_back
    array_pop_front array_position array_prepend array_push_back array_push_front array_reduce array_resize
    array_reverse array_reverse_sort array_select array_slice array_sort array_to_string
    array_to_string_comma_default array_transform array_unique array_value array_where array_zip cardinality
    element_at equi_width_bins filter flatten generate_series generate_subscripts grade_up list_aggr list_aggregate
    list_any_value list_append list_apply list_approx_count_distinct list_avg list_bit_and list_bit_or list_bit_xor
    list_bool_and list_bool_or list_cat list_concat list_contains list_cosine_distance list_cosine_similarity
    list_count list_distance list_distinct list_dot_product list_element list_entropy list_extract list_filter
    list_first list_grade_up list_has list_has_all list_has_any list_histogram list_indexof list_inner_product
    list_intersect list_kurtosis list_kurtosis_pop list_last list_mad list_max list_median list_min list_mode
    list_negative_dot_product list_negative_inner_product list_pack list_position list_prepend list_product
    list_reduce list_resize list_reverse list_reverse_sort list_select list_sem list_skewness list_slice list_sort
    list_stddev_pop list_stddev_samp list_string_agg list_sum list_transform list_unique list_value list_var_pop
    list_var_samp list_where list_zip map map_concat map_contains map_contains_entry map_contains_value map_entries
    map_extract map_extract_value map_from_entries map_keys map_values range reduce remap_struct row struct_concat
    struct_contains struct_extract struct_extract_at struct_has struct_indexof struct_insert struct_keys struct_pack
    struct_position struct_update struct_values union_extract union_tag union_value unnest unpivot_list
"""

_JSON = """
    array_to_json from_json from_json_strict json json_array json_array_length json_contains json_deep_merge
    json_exists json_extract json_extract_path json_extract_path_text json_extract_string json_group_array
    json_group_object json_group_structure json_insert json_keys json_merge_patch json_merge_patch_diff json_normalize
    json_object json_pretty json_quote json_remove json_replace json_set json_strip_nulls json_structure
    json_transform json_transform_strict json_type json_valid json_value row_to_json to_json
"""
_JSON_MODIFIERS = """
    json_array_length json_contains json_exists json_extract json_extract_string json_type json_valid json_value
"""

_OTHERS = """
    bit_position bitstring enum_code enum_first enum_last enum_range enum_range_boundary gen_random_uuid get_bit
    is_histogram_other_bin random set_bit uuid uuid_extract_timestamp uuid_extract_version uuidv4 uuidv7
"""

_AGGREGATES = """
    any_value approx_count_distinct approx_quantile approx_top_k arbitrary arg_max arg_max_null arg_max_nulls_last
    arg_min arg_min_null arg_min_nulls_last argmax argmin array_agg avg bit_and bit_or bit_xor bitstring_agg bool_and
    bool_or corr count count_if count_star countif covar_pop covar_samp entropy favg first fsum geomean geometric_mean
    group_concat histogram histogram_exact kahan_sum kurtosis kurtosis_pop last list listagg lttb mad max max_by mean
    median min min_by mode product quantile quantile_cont quantile_disc regr_avgx regr_avgy regr_count regr_intercept
    regr_r2 regr_slope regr_sxx regr_sxy regr_syy reservoir_quantile sem skewness stddev stddev_pop stddev_samp
    string_agg sum sum_no_overflow sumkahan var_pop var_samp variance wavg weighted_avg
"""

_WINDOWS = """
    cume_dist dense_rank fill first_value lag last_value lead nth_value ntile percent_rank rank rank_dense row_number
"""

_OWN_MACROS = "student_975 student_of_inverse wilson_lo wilson_hi"

FUNCTIONS = frozenset(
    " ".join((
        _OPERATORS, _MATHS, _LOGIC, _TEXT_TESTS, _TEXT_OF_SAME_SIZE, _TEXT, _TIME, _TIME_AS_TEXT, _LISTS, _JSON,
        _OTHERS, _AGGREGATES, _WINDOWS, _OWN_MACROS,
    )).split()
)  # fmt: skip
"""Scalar, aggregate and window functions of a SELECT."""

TABLE_FUNCTIONS = frozenset({"generate_series", "json_each", "json_tree", "quality", "range", "trace", "unnest"})
"""Functions that may stand in FROM."""

CONDITION_FUNCTIONS = frozenset(
    " ".join((
        _OPERATORS, _MATHS, _LOGIC, _TEXT_TESTS, _TEXT_OF_SAME_SIZE, _TIME, _TIME_AS_TEXT, _JSON_MODIFIERS,
        "cardinality list_contains list_has array_contains array_has map_contains map_extract map_extract_value",
        "element_at array_extract list_extract struct_extract",
    )).split()
) - {"factorial", "gamma", "ifnull"}  # fmt: skip
"""Functions of a `where`: linear in time, and with results that are never larger than the arguments.

A rule's `where` runs in the writer's transaction, which must stay short. So there is no `levenshtein` or `replace`, and
nothing that repeats, pads, formats or encodes.
"""

CONDITION_TYPES = frozenset({
    "bigint", "bool", "boolean", "date", "decimal", "double", "float", "hugeint", "int", "integer", "interval",
    "numeric", "real", "smallint", "string", "text", "time", "timestamp", "timestamp with time zone", "timestamptz",
    "tinyint", "ubigint", "uinteger", "uuid", "varchar",
})  # fmt: skip
"""The types that a `where` may cast to: casts to blobs, bits and lists and back would make texts longer."""


_NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE"})
_SOURCES = frozenset({
    "BASE_TABLE", "EMPTY", "EXPRESSION_LIST", "JOIN", "PIVOT", "SHOW_REF", "SUBQUERY", "TABLE_FUNCTION",
})  # fmt: skip
_MODIFIERS = frozenset({
    "DISTINCT_MODIFIER", "LIMIT_MODIFIER", "LIMIT_PERCENT_MODIFIER", "ORDER_MODIFIER", "ORDER_DEFAULT",
    "ASCENDING", "DESCENDING",
})  # fmt: skip
_EXPRESSIONS = frozenset({
    "BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "FUNCTION", "LAMBDA",
    "LAMBDA_REF", "OPERATOR", "PARAMETER", "POSITIONAL_REFERENCE", "STAR", "SUBQUERY", "TYPE", "WINDOW",
})  # fmt: skip
_SHOW_TYPES = frozenset({"DESCRIBE", "SUMMARY"})
_CTE_NAME = re.compile(r"\w[\w ]*\Z")
_SYSTEM_PREFIXES = ("__", "duckdb_", "information_schema", "pg_", "pragma_", "sqlite_")
"""The prefixes of DuckDB's own views. No CTE may have such a name, whatever its scope."""
_MAX_TEXT = 1_000_000

Tree = dict[str, Any]


def checked(cursor: duckdb.DuckDBPyConnection, sql: str, catalog: str) -> Tree:
    """Return the parsed statement; raises Refused where it is anything but one SELECT over `catalog`."""
    tree = parsed(cursor, sql)
    statements = tree["statements"]
    if len(statements) != 1:
        raise Refused(f"exactly one SELECT is allowed, got {len(statements)} statements")
    _Walk(catalog).statement(statements[0])
    return dict(statements[0]["node"])


def parsed(cursor: duckdb.DuckDBPyConnection, sql: str) -> Tree:
    """Parse with DuckDB's own parser; raises Refused with the reason."""
    if len(sql) > _MAX_TEXT:
        raise Refused(f"the statement is longer than {_MAX_TEXT} characters")
    text = cursor.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchall()[0][0]
    try:
        tree = dict(json.loads(text))
    except RecursionError as error:
        raise Refused("the statement is nested too deeply") from error
    if tree.get("error"):
        reason = str(tree.get("error_message", ""))
        only_select = tree.get("error_type") == "not implemented" and "SELECT" in reason
        raise Refused("only SELECT is allowed" if only_select else f"Parser Error: {reason}")
    return tree


def nodes(node: Any) -> Iterator[Tree]:
    """Return every object of a serialized statement."""
    pending = [node]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            yield item
            pending += item.values()
        elif isinstance(item, list):
            pending += item


def path_of(node: Tree, *names: str) -> tuple[str, ...]:
    """Return the qualified name of a reference, in lower case: by `qualified_name`, else by the fields `names`."""
    path = (node.get("qualified_name") or {}).get("path")
    parts = path if path is not None else [node.get(name) for name in names]
    return tuple(str(part).lower() for part in parts if part)


class _Walk:
    """Walks one statement; the name of a CTE is valid in its scope."""

    def __init__(self, catalog: str) -> None:
        schemas = {(): VIEW_NAMES, ("main",): VIEW_NAMES, ("raw",): TABLES}
        own_catalog = catalog.lower()
        self._tables = {
            (*front, *schema, name)
            for schema, names in schemas.items()
            for front in ((), (own_catalog,))
            for name in names
        }

    def statement(self, statement: Tree) -> None:
        """Check every node; raises Refused."""
        if statement["node"].get("type") not in _NODES:
            raise Refused("only SELECT is allowed")
        # No recursion: a long sum is nested deeper than Python allows.
        pending: list[tuple[Any, frozenset[str]]] = [(statement, frozenset())]
        while pending:
            node, ctes = pending.pop()
            if isinstance(node, dict):
                pending += self._below(node, ctes)
            elif isinstance(node, list):
                pending += [(child, ctes) for child in node]

    def _below(self, node: Tree, ctes: frozenset[str]) -> Iterator[tuple[Any, frozenset[str]]]:
        """Check a node; yields its children with the names of the CTEs in their scope."""
        for entry in (node.get("cte_map") or {}).get("map") or ():
            yield entry["value"], ctes
            ctes |= {_cte_name(entry["key"])}
        self._check(node, ctes)
        if node.get("class") == "CONSTANT":
            return
        for key, child in node.items():
            itself = key == "right" and node.get("type") == "RECURSIVE_CTE_NODE"
            if key != "cte_map":
                yield child, ctes | {_cte_name(node.get("cte_name"))} if itself else ctes

    def _check(self, node: Tree, ctes: frozenset[str]) -> None:
        kind, expression = node.get("type"), node.get("class")
        if expression is not None:
            self._expression(node, str(expression))
        elif kind == "BASE_TABLE":
            self._table(node, ctes)
        elif kind == "TABLE_FUNCTION":
            self._table_function(node)
        elif kind == "SHOW_REF":
            self._show(node)
        elif isinstance(kind, str) and not _known(kind):
            raise Refused(f"{kind} is not allowed")

    def _expression(self, node: Tree, kind: str) -> None:
        if kind not in _EXPRESSIONS:
            raise Refused(f"{node.get('type')} is not allowed")
        if kind in ("FUNCTION", "WINDOW"):
            name = path_of(node, "function_name")[-1:] or ("",)
            if name[0] not in FUNCTIONS and str(node.get("function_name")) not in TABLE_FUNCTIONS:
                raise Refused(f"the function {name[0]} is not allowed")

    def _table(self, node: Tree, ctes: frozenset[str]) -> None:
        path = path_of(node, "catalog_name", "schema_name", "table_name")
        if node.get("at_clause"):
            raise Refused("AT is not allowed")
        if path not in self._tables and not (len(path) == 1 and path[0] in ctes):
            raise Refused(f"{'.'.join(path)!r} is not a table or view of the store")

    def _table_function(self, node: Tree) -> None:
        function = node.get("function") or {}
        path = path_of(function, "catalog", "schema", "function_name")
        if len(path) != 1 or path[0] not in TABLE_FUNCTIONS:
            raise Refused(f"the table function {'.'.join(path)} is not allowed")

    def _show(self, node: Tree) -> None:
        if not node.get("query") or node.get("show_type") not in _SHOW_TYPES:
            raise Refused("only DESCRIBE and SUMMARIZE of a query or a view are allowed")


def _cte_name(name: Any) -> str:
    lower = str(name).lower()
    if not _CTE_NAME.match(lower) or lower.startswith(_SYSTEM_PREFIXES):
        raise Refused(f"{name!r} is not a name for a CTE")
    return lower


def _known(kind: str) -> bool:
    return kind in _NODES or kind in _SOURCES or kind in _MODIFIERS or kind.endswith("_TYPE_INFO")
