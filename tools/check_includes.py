#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds each source file to the standard headers that it uses: a name that reaches it only through another standard or library header
is a build that fails with another compiler or library.

Reads every C++ and CUDA source; a file has what it includes itself and what the project's own headers that it includes have. Exits 1
naming, of each file and header, the first line that uses a standard name without it, and each standard name that HEADERS lacks.
"""
import functools
import pathlib
import re
import sys

# The part of <utility> that other headers bring; libstdc++ has std::exchange and sequences in <utility> alone.
PAIRS = "utility's move and pair"
# Header: the names after std:: that it declares. A name in several headers may come from any of them.
HEADERS = {
    "algorithm": """adjacent_find all_of any_of binary_search clamp copy copy_if copy_n count count_if equal fill fill_n find find_if
                    find_if_not for_each generate includes is_sorted lower_bound max max_element merge min min_element minmax
                    minmax_element mismatch next_permutation none_of nth_element partial_sort partition remove reverse rotate search
                    set_difference set_intersection set_union shuffle sort stable_partition stable_sort transform unique upper_bound""",
    "array": "array",
    "atomic": "atomic atomic_ref memory_order_acquire memory_order_relaxed memory_order_release",
    "barrier": "barrier",
    "bitset": "bitset",
    "bit": "bit_cast bit_ceil bit_floor bit_width countl_zero countr_zero endian has_single_bit popcount rotl rotr",
    "charconv": "from_chars to_chars",
    "chrono": "chrono",
    "cmath": """abs acos asin atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs floor fma fmaf fmax fmin fmod frexp hypot
                ilogb isfinite isinf isnan isnormal ldexp lerp lgamma llrint llround log log10 log1p log2 logb lrint lround nanf nearbyint
                nextafter pow remainder rint round scalbn signbit sin sinh sqrt tan tanh tgamma trunc""",
    "condition_variable": "condition_variable condition_variable_any",
    "cctype": "isalnum isalpha isdigit isprint isspace isupper tolower toupper",
    "csetjmp": "jmp_buf longjmp",
    "csignal": "raise sig_atomic_t signal",
    "cstddef": "byte max_align_t nullptr_t ptrdiff_t size_t",
    "cstdio": "FILE fclose fflush fgets fopen fprintf fputs fread fwrite printf puts remove rename snprintf sscanf",
    "cstdlib": "_Exit abort abs aligned_alloc atexit atof atoi atol calloc exit free getenv malloc quick_exit realloc strtod strtol strtoull system",
    "cstring": "memchr memcmp memcpy memmove memset strchr strcmp strerror strlen strncmp strrchr strstr",
    "ctime": "time time_t",
    "deque": "deque",
    "exception": "current_exception exception exception_ptr rethrow_exception terminate uncaught_exceptions",
    "filesystem": "filesystem",
    "fstream": "fstream ifstream ofstream",
    "functional": "bit_and equal_to function greater hash invoke less_equal multiplies plus ref",
    "future": "async future future_status launch promise",
    "initializer_list": "initializer_list",
    "ios": "ios streamoff streamsize",
    "iostream": "cerr cin cout",
    "istream": "istream ws",
    "iterator": "back_inserter begin distance end inserter istream_iterator make_move_iterator next prev size ssize",
    "limits": "numeric_limits",
    "list": "list",
    "locale": "locale",
    "map": "erase_if map multimap",
    "memory": "enable_shared_from_this make_shared make_unique shared_ptr unique_ptr weak_ptr",
    "memory_resource": "pmr",
    "mutex": "call_once lock_guard mutex once_flag scoped_lock unique_lock",
    "new": "align_val_t bad_alloc nothrow nothrow_t",
    "numbers": "numbers",
    "numeric": "accumulate exclusive_scan gcd inner_product iota lcm partial_sum reduce",
    "optional": "nullopt optional",
    "ostream": "endl ostream",
    "random": """bernoulli_distribution discrete_distribution mt19937 mt19937_64 normal_distribution random_device student_t_distribution
                 uniform_int_distribution uniform_real_distribution""",
    "ratio": "milli",
    "regex": "regex regex_match regex_replace regex_search smatch sregex_iterator",
    "set": "erase_if multiset set",
    "span": "as_bytes as_writable_bytes dynamic_extent span",
    "sstream": "istringstream ostringstream stringstream",
    "stdexcept": "domain_error invalid_argument length_error logic_error out_of_range overflow_error range_error runtime_error",
    "string": "erase erase_if getline stod stof stoi stol stoll stoul stoull string string_literals to_string",
    "string_view": "string_view",
    "system_error": "errc error_code generic_category system_category system_error",
    "thread": "jthread this_thread thread",
    "tuple": "apply forward_as_tuple get ignore make_tuple tie tuple tuple_element_t tuple_size_v",
    "type_traits": """conditional_t decay_t enable_if_t integral_constant is_floating_point_v is_integral_v is_same_v
                      is_trivially_copyable_v remove_cv_t remove_reference_t underlying_type_t""",
    "unordered_map": "unordered_map",
    "unordered_set": "unordered_set",
    "utility": "exchange get index_sequence integer_sequence make_index_sequence make_integer_sequence make_pair move pair swap",
    PAIRS: "get make_pair move pair swap",
    "variant": "get get_if holds_alternative monostate variant visit",
    "vector": "erase erase_if vector",
}
# What a header brings beside its own names, by the standard or in every standard library.
STREAM = ["cstddef", "ios", "istream", "ostream", "string", "string_view", PAIRS]
CONTAINER = ["cstddef", "initializer_list", "iterator", PAIRS]
BRINGS = {
    **dict.fromkeys(["fstream", "iostream", "istream", "ostream", "sstream"], STREAM),
    **dict.fromkeys(["array", "deque", "list", "map", "optional", "set", "string_view", "unordered_map", "vector"], CONTAINER),
    **dict.fromkeys(["algorithm", "functional", "mutex", "thread", "tuple", "variant"], [PAIRS]),
    **dict.fromkeys(["cstdio", "cstdlib", "cstring", "ctime"], ["cstddef"]),
    "chrono": ["ratio"],
    "filesystem": ["string", *CONTAINER],
    "memory": ["cstddef", PAIRS],
    "span": ["array", *CONTAINER],
    "string": ["string_view", *CONTAINER],
}
FIXED_WIDTH = re.compile(r"(?<![\w:.>])u?int(8|16|32|64|ptr)_t\b")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
NAME = re.compile(r"\bstd::(\w+)")
LITERAL = re.compile(r'"(?:\\.|[^"\\])*"')
FOLDERS = ("include", "kernels", "src", "trainers", "tools", "tests")
SOURCES = {".h", ".hpp", ".cpp", ".cu", ".cuh"}
DECLARED_IN = {}
for header, names in HEADERS.items():
    for name in names.split():
        DECLARED_IN.setdefault(name, []).append(header)


def code_lines(text):
    """(number, line) without comments and string literals."""
    text = re.sub(r"/\*.*?\*/", lambda found: "\n" * found.group().count("\n"), text, flags=re.S)
    for number, line in enumerate(text.splitlines(), 1):
        yield number, line if INCLUDE.match(line) else LITERAL.sub('""', line).split("//")[0]


def faults(root):
    paths = [p for f in FOLDERS for p in sorted((root / f).rglob("*")) if p.suffix in SOURCES]
    lines = {p: list(code_lines(p.read_text(encoding="utf-8"))) for p in paths}

    def own(path, target):
        """The project's file that `path` names `target`, or None."""
        return next((p for p in (root / target, root / "include" / target, path.parent / target) if p in lines), None)

    @functools.cache
    def headers(path):
        """The standard headers that `path` has for sure."""
        found = set()
        for _, line in lines[path]:
            if match := INCLUDE.match(line):
                target = match.group(1)
                file = own(path, target)
                found |= headers(file) if file else {{"stdint.h": "cstdint", "stddef.h": "cstddef"}.get(target, target)}
        return found.union(*(BRINGS.get(header, ()) for header in found))

    for path in paths:
        have, said = headers(path), set()
        for number, line in lines[path]:
            names = NAME.findall(line)
            yield from (f"{path.relative_to(root).as_posix()}:{number}: std::{name} has no row in HEADERS of tools/check_includes.py"
                        for name in names if name not in DECLARED_IN)
            uses = [(f"std::{name}", DECLARED_IN[name]) for name in names if name in DECLARED_IN]
            uses += [(found.group(), ["cstdint"]) for found in FIXED_WIDTH.finditer(line)]
            for name, declared in uses:
                if not have.intersection(declared) and declared[0] not in said:
                    said.add(declared[0])
                    yield f"{path.relative_to(root).as_posix()}:{number}: {name} without #include <{declared[0]}>"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    found = list(faults(root))
    print("\n".join(found) if found else "includes: every standard name has its header")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
