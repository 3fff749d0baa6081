// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

import {Submission} from "./Submission.sol";

interface Allowlist {
    function allowed(address who) external view returns (bool);

    function set(address who, bool yes) external;
}

contract Stranger {
    function ask(Allowlist list) external {
        list.set(address(this), true);
    }
}

contract Harness {
    Allowlist list;

    function setUp() external {
        list = Allowlist(address(new Submission(address(this))));
    }

    function test_nobody_at_first() external view {
        require(!list.allowed(address(1)), "allowed");
    }

    function test_owner_adds() external {
        list.set(address(1), true);
        require(list.allowed(address(1)) && !list.allowed(address(2)), "not added");
    }

    function test_owner_removes() external {
        list.set(address(1), true);
        list.set(address(1), false);
        require(!list.allowed(address(1)), "not removed");
    }

    function test_stranger_is_refused() external {
        Stranger stranger = new Stranger();
        try stranger.ask(list) {
            revert("accepted");
        } catch {}
    }

    function metric_gas() external returns (uint256) {
        uint256 before = gasleft();
        list.set(address(1), true);
        return before - gasleft();
    }
}
