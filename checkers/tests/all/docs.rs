//! `docs/checkers.md` is what the list of checkers says. Set `SCHISM_BLESS=1` to write it.

use std::path::Path;

#[test]
fn the_page_of_checkers_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/checkers.md");
    let page = checkers::docs::markdown();
    if std::env::var_os("SCHISM_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("the folder");
        std::fs::write(&path, &page).expect("the page");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == page,
        "{} is out of date; run `SCHISM_BLESS=1 cargo test -p checkers docs`",
        path.display()
    );
}
