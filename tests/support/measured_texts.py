"""Set-up shared by tests: what test_measured.py and others use."""

from __future__ import annotations

SAMPLES = {
    "python": '''import os

# a note
def pick(a, b, *, c=1):
    """Say what."""
    if a and b:
        return 1
    elif b:
        for x in a:
            if x:
                return "secret"
    return 0


def test_pick():
    pick(1, 2)
''',
    "javascript": """import os from "os";

// a note
function pick(a, b, c) {
  if (a && b) {
    return 1;
  } else if (b) {
    for (const x of a) {
      if (x) { return "secret"; }
    }
  }
  return 0;
}

test("pick", () => { pick(1, 2); });
""",
    "typescript": """import os from "os";

// a note
function pick(a: number[], b: boolean, c: string): string | number {
  if (a && b) {
    return 1;
  } else if (b) {
    for (const x of a) {
      if (x) { return "secret"; }
    }
  }
  return 0;
}

test("pick", () => { pick([1], true, ""); });
""",
    "solidity": """import "./os.sol";
contract Picker {
    // a note
    function pick(uint a, bool b, uint c) public returns (uint) {
        if (a > 1 && b) {
            return 1;
        } else if (b) {
            for (uint x = 0; x < a; x++) {
                if (x > 2) { emit Said("secret"); }
            }
        }
        return 0;
    }

    function testPick() public { pick(1, true, 2); }
}
""",
    "rust": """use std::env;

// a note
fn pick(a: &[u8], b: bool, c: u8) -> u8 {
    if a.len() > 1 && b {
        return 1;
    } else if b {
        for x in a {
            if *x > 2 { println!("secret"); }
        }
    }
    0
}

#[test]
fn picks() { pick(&[1], true, 2); }
""",
    "go": """package picker

import "fmt"

// a note
func pick(a []int, b bool, c int) int {
	if len(a) > 1 && b {
		return 1
	} else if b {
		for _, x := range a {
			if x > 2 {
				fmt.Println("secret")
			}
		}
	}
	return 0
}

func TestPick() { pick(nil, true, 2) }
""",
}
