"""The language models: one adapter a provider, all fulfilling `judge.port.Llm`; `build_llm` chooses by name."""
