// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

import {Submission} from "./Submission.sol";

/// What a submission must be able to do, in the harness's own words: it is called by these types and no others.
interface Curve {
    function fee(uint256 x, uint256 y, uint256 amount, uint256 volume) external view returns (uint256);
}

/// A constant-product pool with the fee that the submission asks for, traded against 400 times.
/// The market price walks; an informed trader takes what is mispriced, another one pays for convenience.
contract Harness {
    uint256 constant ONE = 1e9;
    uint256 constant MOST = 100_000; // a tenth, in millionths

    Curve curve;
    Pool traded;
    bool fair;

    struct Pool {
        uint256 x;
        uint256 y;
        uint256 price;
        uint256 volume;
        uint256 seed;
        uint256 earned;
        uint256 questions;
        uint256 gas;
    }

    /// All trades happen here, once: tests and metrics look at the same pool, so there is nothing to tell apart.
    function setUp() external {
        curve = Curve(address(new Submission()));
        try this.run(400) returns (Pool memory pool) {
            traded = pool;
            fair = pool.earned > 0;
        } catch {}
    }

    function start() internal pure returns (Pool memory pool) {
        (pool.x, pool.y, pool.price, pool.seed) = (1_000_000 * ONE, 1_000_000 * ONE, ONE, 0xc1a4a);
    }

    /// One question for every trade, and its answer is what the trade pays; what asking costs is counted here.
    function fee(Pool memory pool, uint256 amount) internal view returns (uint256 asked) {
        uint256 before = gasleft();
        asked = curve.fee(pool.x, pool.y, amount, pool.volume);
        pool.gas += before - gasleft();
        pool.questions += 1;
        require(asked <= MOST, "above a tenth");
    }

    /// Sell `amount` of x into the pool for `asked` millionths.
    function sell(Pool memory pool, uint256 amount, uint256 asked) internal pure {
        uint256 kept = (amount * (1_000_000 - asked)) / 1_000_000;
        uint256 out = (pool.y * kept) / (pool.x + kept);
        pool.x += amount;
        pool.y -= out;
        pool.volume += amount;
        pool.earned += amount - kept;
    }

    function buy(Pool memory pool, uint256 amount, uint256 asked) internal pure {
        uint256 kept = (amount * (1_000_000 - asked)) / 1_000_000;
        uint256 out = (pool.x * kept) / (pool.y + kept);
        pool.y += amount;
        pool.x -= out;
        pool.volume += amount;
        pool.earned += amount - kept;
    }

    function next(Pool memory pool, uint256 range) internal pure returns (uint256) {
        pool.seed = uint256(keccak256(abi.encode(pool.seed)));
        return pool.seed % range;
    }

    /// One step: the price moves, the informed trader comes if it pays, then somebody trades in any case.
    function step(Pool memory pool) internal view {
        uint256 move = next(pool, 20_001);
        pool.price = (pool.price * (990_000 + move)) / 1_000_000;
        uint256 inside = (pool.y * ONE) / pool.x;
        uint256 lot = pool.x / 400;
        if (inside > pool.price) {
            uint256 asked = fee(pool, lot);
            if (inside * (1_000_000 - asked) > pool.price * 1_000_000) sell(pool, lot, asked);
        } else {
            uint256 amount = (lot * inside) / ONE;
            uint256 asked = fee(pool, amount);
            if (pool.price * (1_000_000 - asked) > inside * 1_000_000) buy(pool, amount, asked);
        }
        uint256 size = pool.x / (1_000 + next(pool, 4_000));
        uint256 patience = 2_000 + next(pool, 30_000);
        bool sells = next(pool, 2) == 0;
        if (!sells) size = (size * inside) / ONE;
        uint256 wanted = fee(pool, size);
        if (wanted > patience) return;
        if (sells) sell(pool, size, wanted);
        else buy(pool, size, wanted);
    }

    function run(uint256 steps) external view returns (Pool memory pool) {
        pool = start();
        for (uint256 i = 0; i < steps; ++i) step(pool);
    }

    function bounded(uint256 x, uint256 y, uint256 amount, uint256 volume) internal view {
        require(curve.fee(x, y, amount, volume) <= MOST, "above a tenth");
    }

    function test_balanced() external view {
        bounded(1e15, 1e15, 1e12, 0);
    }

    function test_lopsided() external view {
        bounded(1e18, 1e12, 1e12, 1e18);
    }

    function test_tiny_trade() external view {
        bounded(1e15, 1e15, 1, 0);
    }

    function test_nothing() external view {
        bounded(1e15, 1e15, 0, 0);
    }

    function test_huge_trade() external view {
        bounded(1e15, 1e15, 1e15, 1e20);
    }

    function test_is_not_free_for_large_trades() external view {
        require(curve.fee(1e15, 1e15, 1e14, 0) > 0, "free");
    }

    function test_same_question_same_answer() external view {
        require(curve.fee(2e15, 1e15, 1e12, 5) == curve.fee(2e15, 1e15, 1e12, 5), "moody");
    }

    function test_trades_happen() external view {
        require(traded.volume > 0, "no volume");
    }

    /// A metric checks what it measured: without a fair run there is no number.
    modifier afterTrading() {
        require(fair, "the trades broke a rule, or earned nothing");
        _;
    }

    /// What the pool is worth at the market's price against having held, in millionths.
    function metric_edge() external view afterTrading returns (int256) {
        uint256 held = (1_000_000 * ONE * traded.price) / ONE + 1_000_000 * ONE;
        uint256 now_ = (traded.x * traded.price) / ONE + traded.y;
        return (int256(now_) - int256(held)) / int256(held / 1_000_000);
    }

    function metric_volume() external view afterTrading returns (uint256) {
        return traded.volume / ONE;
    }

    /// What one question costs, on average over all that were asked while trading.
    function metric_fee_gas() external view afterTrading returns (uint256) {
        return traded.gas / traded.questions;
    }
}
