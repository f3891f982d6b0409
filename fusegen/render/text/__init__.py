"""What all rendered text needs: templates, identifiers of C++, and lines of 100 columns."""
