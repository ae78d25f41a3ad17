"""The HTTP edge: what the services' APIs have in common. Knows the kernel; holds no business."""
