"""One evaluation: from config, submissions and answers to a ranking and its trace."""
