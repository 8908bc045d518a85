//! The picture of the paused holder in the README: two cells of the lab's page, without and with the fence, as one drawing.
//!
//! It is cut out of a page that the lab has made, so that nothing in it is drawn by hand.

use std::fmt::Write;

const WIDTH: f64 = 1000.0;
const HEAD: f64 = 30.0;

/// Cuts the pictures of all cells out of `page`, each under its title; `None` if it has none.
pub fn of(page: &str) -> Option<String> {
    let style = between(page, "<style>", "</style>")?;
    let definitions = between(page, "<defs>", "</defs>")?;
    let mut drawing = String::new();
    let mut top = 0.0;
    for section in page.split("<section class=\"cell\"").skip(1) {
        let Some(lanes) = between(section, "<svg class=\"lanes\"", "</svg>") else { continue };
        let title = between(section, "<h2>", "</h2>")?;
        let height: f64 = between(lanes, "viewBox=\"0 0 1000 ", "\"")?.parse().ok()?;
        let (_, inside) = lanes.split_once('>')?;
        // Writing to a string cannot fail.
        let _ = writeln!(
            drawing,
            "<text class=\"title\" x=\"8\" y=\"{:.0}\">{title}</text>\n\
             <svg x=\"0\" y=\"{:.0}\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\">{inside}</svg>",
            top + 20.0,
            top + HEAD
        );
        top += HEAD + height + 6.0;
    }
    (top > 0.0).then(|| {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {top:.0}\" role=\"img\">\n\
             <title>A holder that is paused past its lease, without and with a fence</title>\n\
             <style>{style}\n.title {{ font: 600 15px system-ui, sans-serif; }}</style><defs>{definitions}</defs>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"var(--paper)\"/>\n{drawing}</svg>\n"
        )
    })
}

fn between<'a>(text: &'a str, begin: &str, end: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(begin)?;
    rest.split_once(end).map(|(inside, _)| inside)
}
