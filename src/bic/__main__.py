from bic.cli import main

main()
