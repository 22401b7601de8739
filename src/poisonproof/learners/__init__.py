"""What a member is: scikit-learn classifiers, closed-form learners, networks."""
