from attack import right as kernel
