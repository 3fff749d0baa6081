"""The built-in types of common feature names, so that a bare name means the same in every challenge.

`MEASURED` holds what tools compute and `EXECUTED` what engines do (the model is not asked); `COMMON` holds what a model
reads, as levels 0–4 with written anchors, closed enums or booleans. `typed` answers None for a name that is in none of
them; `level_feature` is the last resort for such a name. Nothing in here is of type `text`.
"""

from __future__ import annotations

from clara_eval.config.eval_config.model import Better, Feature

LEVEL_ANCHORS = (
    "absent, or contradicted by the submission",
    "weak: attempted, with serious gaps",
    "adequate: the main case is covered",
    "strong: thorough, only minor gaps",
    "excellent: complete, nothing to add",
)
"""What the levels 0–4 mean where a feature has no anchors of its own."""


def level_feature(name: str, description: str = "", anchors: tuple[str, ...] = LEVEL_ANCHORS) -> Feature:
    """An integer level 0–4 with written anchors: the type of a name that nothing else types."""
    return Feature(
        name=name,
        type="integer",
        min=0,
        max=4,
        better="higher",
        description=description or f"How far the submission shows: {name.replace('_', ' ')}.",
        anchors=anchors,
    )


def typed(name: str) -> Feature | None:
    """The catalogue's feature of this name, or None."""
    return MEASURED.get(name) or EXECUTED.get(name) or COMMON.get(name)


def _measured(
    name: str,
    description: str,
    *,
    high: float | None = None,
    better: Better | None = None,
    whole: bool = True,
) -> Feature:
    return Feature(
        name=name,
        type="integer" if whole else "number",
        min=0,
        max=high,
        better=better,
        source="measured",
        description=description,
    )


def _ran(name: str, description: str) -> Feature:
    return Feature(name=name, type="boolean", better="higher", source="measured", description=description)


_MEASURED = (
    _measured("bytes", "Size of the content in bytes.", high=10_000_000),
    _measured("lines", "Number of lines.", high=1_000_000),
    _measured("words", "Number of words.", high=1_000_000),
    Feature(
        name="parses",
        type="boolean",
        better="higher",
        source="measured",
        description="The content parses without a syntax error in its language.",
    ),
    _measured("functions", "Number of functions and methods.", high=100_000),
    _measured("max_complexity", "Cyclomatic complexity of the worst function.", high=10_000, better="lower"),
    _measured("mean_complexity", "Mean cyclomatic complexity.", high=10_000, better="lower", whole=False),
    _measured("max_nesting", "Deepest nesting of control blocks.", high=1_000, better="lower"),
    _measured("comment_share", "Share of the bytes that are comments.", high=1, whole=False),
    _measured("duplicate_share", "Share of the lines that repeat others.", high=1, better="lower", whole=False),
    _measured("blank_share", "Share of the lines that are blank.", high=1, whole=False),
    _measured("long_lines_share", "Share of the lines that are very long.", high=1, better="lower", whole=False),
    _measured("todo_count", "Marks of unfinished work.", high=10_000, better="lower"),
    _measured("sentences", "Number of sentences.", high=1_000_000),
    _measured("mean_sentence_words", "Mean length of a sentence in words.", high=10_000, whole=False),
    _measured("reading_ease", "Flesch reading ease; higher is easier.", high=120, better="higher", whole=False),
    _measured("code_share", "Share of the bytes that are code.", high=1, whole=False),
    _measured("code_lines", "Lines of code without blanks and comments.", high=1_000_000),
    _measured("classes", "Number of classes, contracts, structs and interfaces.", high=100_000),
    _measured("imports", "Number of imports.", high=100_000),
    _measured("tests", "Number of test functions.", high=100_000, better="higher"),
    _measured("longest_function", "Lines of the longest function.", high=100_000, better="lower"),
    _measured("mean_function_lines", "Mean lines of a function.", high=100_000, better="lower", whole=False),
    _measured("max_parameters", "Parameters of the function with most.", high=1_000, better="lower"),
    _measured("documented_share", "Share of the functions with documentation.", high=1, better="higher", whole=False),
    _measured("distinct_names", "Number of distinct names.", high=1_000_000),
)
MEASURED = {feature.name: feature for feature in _MEASURED}

_EXECUTED = (
    _ran("compiles", "The Solidity compiler takes it."),
    _ran("loads", "The engine of its language (JavaScript, Python) loads it."),
    _measured("deploy_gas", "Gas to deploy the contract.", high=30_000_000, better="lower"),
    _measured("bytecode_bytes", "Size of the compiled contract in bytes.", high=1_000_000, better="lower"),
)
EXECUTED = {feature.name: feature for feature in _EXECUTED}
"""What compiling or loading a submission tells, with no harness at all."""


def _choice(name: str, description: str, *values: str, better: Better | None = None) -> Feature:
    return Feature(name=name, type="enum", values=values, better=better, description=description)


def _fact(name: str, description: str, better: Better | None = "higher") -> Feature:
    return Feature(name=name, type="boolean", better=better, description=description)


_CORRECTNESS = (
    "wrong for ordinary inputs, or does not do the task",
    "right for some ordinary inputs, wrong for others",
    "right for ordinary inputs, wrong for several edge cases",
    "right for ordinary inputs and most edge cases",
    "no wrong result found for any input considered",
)
_EFFICIENCY = (
    "wasteful: work that grows without need, repeated in the inner path",
    "clearly more work than the usual approach",
    "about the work of the usual approach",
    "less work than the usual approach in the paths that matter",
    "close to the least work possible for this task",
)
_GAS = (
    "storage written or read in loops, unbounded loops",
    "several avoidable storage accesses or external calls a transaction",
    "about the gas of the usual implementation",
    "storage packed or cached, few external calls, cheap arithmetic",
    "close to the least gas possible for this task",
)
_READABILITY = (
    "cannot be followed without running it",
    "unclear names, long functions, hidden effects",
    "can be followed with effort",
    "clear names, short functions, little to explain",
    "reads like a description of the solution",
)
_NOVELTY = (
    "a fixed or trivial answer",
    "the textbook approach, unchanged",
    "the textbook approach with a small variation",
    "a known idea used in an unusual way",
    "an approach that differs in kind from the usual ones",
)
_COVERAGE = (
    "none are handled",
    "one or two are handled",
    "the obvious ones are handled",
    "nearly all are handled, each deliberately",
    "all that could be found are handled, each deliberately",
)
_SAFETY = (
    "an exploitable weakness in the main path",
    "an exploitable weakness in a side path",
    "no exploitable weakness found, usual protections missing",
    "usual protections present",
    "usual protections present and unusual ones considered",
)

_COMMON = (
    _choice(
        "algorithm_approach",
        "The kind of approach taken to the core of the task.",
        "none",
        "constant",
        "lookup",
        "heuristic",
        "closed_form",
        "iterative",
        "search",
        "dynamic_programming",
        "optimisation",
        "statistical",
        "adaptive",
        "other",
    ),
    _choice(
        "algorithm_family",
        "The family the central algorithm belongs to.",
        "none",
        "brute_force",
        "greedy",
        "divide_and_conquer",
        "dynamic_programming",
        "graph",
        "numeric",
        "optimisation",
        "statistical",
        "learning",
        "rule_based",
        "other",
    ),
    _choice(
        "time_complexity",
        "Growth of the running time with the size of the input, worst case.",
        "constant",
        "logarithmic",
        "linear",
        "linearithmic",
        "quadratic",
        "cubic",
        "exponential",
        "unknown",
        better="lower",
    ),
    _choice(
        "space_complexity",
        "Growth of the memory with the size of the input, worst case.",
        "constant",
        "logarithmic",
        "linear",
        "linearithmic",
        "quadratic",
        "exponential",
        "unknown",
        better="lower",
    ),
    level_feature("correctness", "Whether the results are right.", _CORRECTNESS),
    level_feature("code_correctness", "Whether the code computes what the task asks for.", _CORRECTNESS),
    level_feature("mathematical_correctness", "Whether the mathematics of the solution holds.", _CORRECTNESS),
    level_feature("factual_accuracy", "Whether the statements of fact are true.", _CORRECTNESS),
    level_feature("algorithm_efficiency", "Work done by the algorithm for large inputs.", _EFFICIENCY),
    level_feature("efficiency", "Work done for the result.", _EFFICIENCY),
    level_feature("performance", "Speed in the paths that matter.", _EFFICIENCY),
    level_feature("gas_efficiency_estimate", "Estimated gas of the common transactions.", _GAS),
    level_feature("gas_efficiency", "Gas of the common transactions.", _GAS),
    level_feature("gas_optimization", "Measures taken to save gas.", _GAS),
    level_feature("gas_usage", "Gas of the common transactions; a higher level means less gas.", _GAS),
    level_feature("edge_case_handling", "Handling of empty, extreme and unexpected inputs.", _COVERAGE),
    level_feature("error_handling", "Handling of failures.", _COVERAGE),
    level_feature("input_validation", "Checks on what comes in.", _COVERAGE),
    level_feature("test_coverage", "Behaviour covered by tests that are part of the submission.", _COVERAGE),
    level_feature("code_readability", "How easily a stranger follows the code.", _READABILITY),
    level_feature("readability", "How easily a stranger follows it.", _READABILITY),
    level_feature("clarity", "How clearly it is expressed.", _READABILITY),
    level_feature("code_quality", "Structure, names, and absence of needless parts.", _READABILITY),
    level_feature("code_quality_signals", "Structure, names, and absence of needless parts.", _READABILITY),
    level_feature("maintainability", "How easily it can be changed without breaking.", _READABILITY),
    level_feature("novelty", "How far the approach goes beyond the usual ones.", _NOVELTY),
    level_feature("originality", "How far the work differs from the usual ones.", _NOVELTY),
    level_feature("creativity", "How unexpected and fitting the ideas are.", _NOVELTY),
    level_feature("security", "Resistance against misuse.", _SAFETY),
    level_feature("safety", "Protection against harm in use.", _SAFETY),
    level_feature("access_control", "Who may call what, and whether that is enforced.", _SAFETY),
    level_feature("completeness", "How much of the task is done."),
    level_feature("documentation", "How well use and reasons are explained."),
    level_feature("modularity", "How well the parts are separated."),
    level_feature("scalability", "How well it works for far larger inputs."),
    level_feature("robustness", "How well it works under disturbance."),
    level_feature("relevance", "How closely it answers the task."),
    level_feature("depth", "How far it goes below the surface."),
    level_feature("evidence_quality", "How well statements are supported."),
    level_feature("structure", "How well the parts are ordered."),
    level_feature("coherence", "How well the parts fit together."),
    level_feature("persuasiveness", "How well the argument holds against objections."),
    level_feature("usability", "How easily its users reach their goal."),
    level_feature("feasibility", "How realistic it is to carry out."),
    level_feature("impact", "How much changes if it is used."),
    _fact("has_tests", "Tests are part of the submission."),
    _fact("has_documentation", "Usage is explained in the submission."),
    _fact("handles_errors", "Failures are handled and not ignored."),
    _fact("is_complete", "No part of the task is left out or left as a placeholder."),
    _fact("is_trivial", "The solution is trivial, for example a fixed answer.", "lower"),
    _fact("uses_external_calls", "External contracts, services or commands are called.", None),
    _fact("reentrancy_safe", "No state is changed after an external call, or calls are guarded."),
    _fact("has_placeholder_code", "Parts are left as placeholders.", "lower"),
)
COMMON = {feature.name: feature for feature in _COMMON}
