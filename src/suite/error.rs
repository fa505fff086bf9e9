//! What is wrong with a spec, shown with the line where it stands.

use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

/// A spec that cannot be run.
#[derive(Debug, Clone)]
pub struct SpecError {
    /// The file as it was named.
    pub path: String,
    /// Its text.
    pub source: String,
    /// The bytes that are wrong; empty where the whole file is meant.
    pub span: Range<usize>,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
    /// Whether the spec is well-formed but selects nothing.
    pub selects_nothing: bool,
}

impl SpecError {
    /// One-based line and column of the place.
    pub fn place(&self) -> (usize, usize) {
        let before = &self.source[..self.span.start.min(self.source.len())];
        let line = before.matches('\n').count() + 1;
        let column = before.len() - before.rfind('\n').map_or(0, |newline| newline + 1) + 1;
        (line, column)
    }

    /// The error with its line, for a terminal; plain text if `styled` is false.
    pub fn render(&self, styled: bool) -> String {
        let end = self.span.end.clamp(self.span.start, self.source.len());
        let start = self.span.start.min(end);
        let snippet = Snippet::source(&self.source)
            .path(&self.path)
            .annotation(AnnotationKind::Primary.span(start..end));
        let mut group = Level::ERROR
            .primary_title(self.message.as_str())
            .element(snippet);
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        let renderer = if styled {
            Renderer::styled()
        } else {
            Renderer::plain()
        };
        renderer.render(&[group]).to_string()
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column) = self.place();
        write!(f, "{}:{line}:{column}: {}", self.path, self.message)
    }
}

impl std::error::Error for SpecError {}
