from penstock.cli.main import main

main()
