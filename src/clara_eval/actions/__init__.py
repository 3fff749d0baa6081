"""One public function for each verb: it checks, plans or does, and returns codes and values."""
