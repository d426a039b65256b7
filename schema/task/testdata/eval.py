print("tester", "é", "😀")
