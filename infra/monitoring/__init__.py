"""What roles say of themselves, folded into what people want to see."""
