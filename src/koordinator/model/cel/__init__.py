"""The Common Expression Language as Kubernetes 1.35 has it: parsed, checked for types, priced, and evaluated in bounds.

``program.compile_expression`` is the way in. An expression passes ``lexer``, ``parser`` (with ``macros``), ``checker``
and ``evaluator``, which makes closures of it; ``functions`` and ``library`` hold what can be called. ``cost_estimate``
says beforehand what an expression may cost at most, and ``budget`` stops what costs more.
"""
