// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

import {Submission} from "./Submission.sol";

interface Vault {
    function deposit() external payable;

    function withdraw(uint256 amount) external;
}

/// Asks for its money again while it is being paid.
contract Greedy {
    Vault immutable vault;
    uint256 turns;

    constructor(Vault vault_) {
        vault = vault_;
    }

    function take() external payable {
        vault.deposit{value: msg.value}();
        try vault.withdraw(msg.value) {} catch {}
    }

    receive() external payable {
        if (turns++ < 3) {
            try vault.withdraw(msg.value) {} catch {}
        }
    }
}

contract Harness {
    Vault vault;

    function setUp() external {
        vault = Vault(address(new Submission()));
    }

    receive() external payable {}

    function test_gives_back() external {
        vault.deposit{value: 100}();
        uint256 before = address(this).balance;
        vault.withdraw(60);
        vault.withdraw(40);
        require(address(this).balance == before + 100, "kept");
    }

    function test_not_more_than_put_in() external {
        new Giver{value: 100}(vault);
        vault.deposit{value: 10}();
        try vault.withdraw(11) {
            revert("taken");
        } catch {}
    }

    function test_not_twice() external {
        vault.deposit{value: 10}();
        new Giver{value: 100}(vault);
        vault.withdraw(10);
        try vault.withdraw(10) {
            revert("taken");
        } catch {}
    }

    function test_not_while_being_paid() external {
        new Giver{value: 100}(vault);
        Greedy greedy = new Greedy(vault);
        greedy.take{value: 10}();
        require(address(greedy).balance <= 10, "taken");
    }
}

contract Giver {
    constructor(Vault vault) payable {
        vault.deposit{value: msg.value}();
    }
}
