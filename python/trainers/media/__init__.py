"""What the trainers of speech and of images share: their commands' ways, settings, pages and files on the disk."""
