"""Every command of `clara-eval`, in the order of its help: where its function is, and its line in the list.

A new command is a function in a module of this folder and one line here.
"""

from __future__ import annotations

from clara_eval.interfaces.cli.lazy import Entry

DEMO_SERVICE = "clara_eval.devnet.demo.living:serve_demo"
"""What `serve --demo` runs."""
COMMANDS = {
    "demo": Entry("clara_eval.devnet.demo.command:demo", "Run one challenge from escrow to claimed prizes, locally."),
    "check": Entry("check:check", "Say what is ready to run and what is missing."),
    "evaluate": Entry("evaluate:evaluate", "Evaluate one challenge and post its winners."),
    "finalize": Entry("challenge:finalize", "Open the claims 12 hours after the post."),
    "status": Entry("status:status", "Show how far an evaluation has come."),
    "leaderboard": Entry("leaderboard:leaderboard", "Show who stands where, with intervals and prizes."),
    "score": Entry("leaderboard:score", "Say why one entry ended where it did."),
    "trace": Entry("trace:trace", "Print the trace of an evaluated challenge."),
    "verify": Entry("verify:verify", "Check a trace without trusting anybody."),
    "calibrate": Entry("calibrate:calibrate", "Measure how far the judges agree with people."),
    "rank": Entry("rank:rank", "Rank pairwise results from a CSV file."),
    "redteam": Entry("clara_eval.redteam.command:redteam", "Attack the evaluation itself and say how it held."),
    "serve": Entry("serve:serve", "Run the service until it is told to stop."),
    "spend": Entry("spend:spend", "Report what was spent on models."),
    "mcp": Entry("mcp:mcp", "Serve the challenge tools to an MCP client over stdio."),
    "devnet": Entry("clara_eval.devnet.command:app", "Run a local chain with every contract deployed."),
    "config": Entry("", "Write, check, price and hash eval configs."),
    "config init": Entry("config:init", "Write a starter config that explains itself."),
    "config features": Entry("config:features", "List everything that can be measured or read."),
    "config validate": Entry("config:validate", "List everything that is wrong with a config."),
    "config hash": Entry("config:hash_", "Print the evalConfigHash of a config."),
    "config quote": Entry("quote:quote", "Say what an evaluation will cost."),
    "config rehearse": Entry("rehearse:rehearse", "Compile the schema and try it on samples."),
    "harness": Entry("", "Run submissions under a poster's harness."),
    "harness run": Entry("harness:run", "Run a submission and print what is measured."),
    "harness check": Entry("harness:check", "Run a harness on a reference solution."),
    "harness hash": Entry("harness:hash_", "Print the privateSetHash of a hidden harness."),
    "harness prepare": Entry("harness:prepare", "See which engines are here, and make them ready."),
    "harness reveal": Entry("harness_reveal:reveal", "Reveal a hidden harness after the deadline."),
    "challenge": Entry("", "Post challenges, submit solutions, claim prizes."),
    "challenge post": Entry("challenge:post", "Post a challenge and escrow its prize."),
    "challenge submit": Entry("challenge:submit", "Submit a solution, or replace your earlier one."),
    "challenge try": Entry("challenge:try_", "Measure a draft before you submit it."),
    "challenge object": Entry("objection:object_", "Object to an announced result before it is posted."),
    "challenge claim": Entry("challenge:claim", "Claim your prize, or your share of an expired challenge."),
    "challenge list": Entry("challenge:list_", "List challenges, newest first."),
    "challenge show": Entry("challenge:show", "Show one challenge in full."),
    "challenge watch": Entry("challenge:watch", "Follow an evaluation until it ends."),
    "review": Entry("", "Approve or reject results that are waiting for a person."),
    "review list": Entry("review:list_waiting", "List the reviews of this network."),
    "review show": Entry("review:show", "Show why one result is waiting, and what was decided."),
    "review approve": Entry("review:approve", "Let the service post exactly the result you reviewed."),
    "review rule": Entry("review:rule", "Exclude an entry, name the original, or ask another judge."),
    "review reject": Entry("review:reject", "End the evaluation as failed; the poster may still post."),
    "publication": Entry("", "Publish posted results elsewhere."),
    "publication sync": Entry("publication:sync", "Publish whatever a place still lacks."),
    "keys": Entry("", "Create keys for the evaluator."),
    "keys new": Entry("keys:new", "Create a key in an encrypted keystore file."),
}
