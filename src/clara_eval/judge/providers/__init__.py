"""The language models: one file a provider, all fulfilling `judge.port.Llm`; `registry` finds them by name."""
