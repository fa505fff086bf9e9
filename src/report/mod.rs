//! Reports of a run for people: one HTML file, and Markdown.
