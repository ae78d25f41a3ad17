"""The benchmarks: `python -m tests.bench [P1 …]`. Subject and peers side by side, on real parts."""
