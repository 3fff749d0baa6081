CREATE TABLE entries (run TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (run, key));

CREATE TABLE answers (
    request TEXT PRIMARY KEY, run TEXT NOT NULL, llm TEXT NOT NULL,
    purpose TEXT NOT NULL, answer TEXT NOT NULL, cost_micro_usd BIGINT
);
CREATE INDEX answers_by_run ON answers (run);

CREATE TABLE public_keys (
    chain_id BIGINT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (chain_id, key)
);

CREATE TABLE transactions (
    run TEXT NOT NULL, intention TEXT NOT NULL, attempt BIGINT NOT NULL,
    sender TEXT NOT NULL, nonce BIGINT NOT NULL, tx_hash TEXT NOT NULL UNIQUE, raw TEXT NOT NULL,
    max_fee_per_gas BIGINT NOT NULL, max_priority_fee_per_gas BIGINT NOT NULL,
    PRIMARY KEY (run, intention, attempt)
);
CREATE INDEX transactions_by_sender ON transactions (sender, nonce);

CREATE TABLE checkpoints (name TEXT PRIMARY KEY, block_number BIGINT NOT NULL, block_hash TEXT NOT NULL);

CREATE TABLE leases (name TEXT PRIMARY KEY, holder TEXT NOT NULL, until_at DOUBLE PRECISION NOT NULL);

CREATE TABLE spends (
    id {serial}, run TEXT NOT NULL, poster TEXT NOT NULL, purpose TEXT NOT NULL,
    reserved_micro_usd BIGINT NOT NULL, settled_micro_usd BIGINT, at BIGINT NOT NULL,
    UNIQUE (run, purpose)
);
CREATE INDEX spends_by_time ON spends (at);
