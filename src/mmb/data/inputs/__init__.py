"""What models take: columns, images, graphs, and how files become them."""
