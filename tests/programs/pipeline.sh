# A shell pipeline of four programs that count together: sh pipeline.sh STEPS
numbers() {
    n=0
    while [ "$n" -lt "$1" ]; do
        echo "$n"
        n=$((n + 1))
        sleep 0.2
    done
}
numbers "$1" | sed -u 's/$/ from sed/' | grep --line-buffered sed | {
    expected=0
    while read -r number words; do
        [ "$number $words" = "$expected from sed" ] || exit 1
        echo "ok $number"
        expected=$((expected + 1))
    done
}
